"""Opens, makes and widens the tables of a job."""
