"""The geometry of training: curvature, spectra of weights, and the loss along lines in weight space."""
