"""Jobs on other machines: what to run there becomes exact files and commands of SLURM, ssh, Ray, Docker and Modal."""
