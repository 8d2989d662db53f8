"""An experiment over bandwidths: Montage, as published for a network in front of a disk."""
