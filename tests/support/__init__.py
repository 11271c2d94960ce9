"""What tests stand on: the database cluster and what makes worlds for them."""
