"""What moves a robot: MuJoCo on the CPU, Warp on a GPU."""
