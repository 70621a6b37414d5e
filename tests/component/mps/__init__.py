"""The component that looks after MPS daemons, with the real edge over a stand-in of the program."""
