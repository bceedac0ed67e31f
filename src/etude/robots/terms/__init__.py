"""What tasks are made of: small functions of the state of many robots, chosen by name."""
