"""Foreign environments: how the state of what others wrote is read and put back, exactly or not at all.

One file per kind of environment, behind one interface (`adapters.Adapter`); `tsr_gym.stack` walks over the layers.
These files look into classes that know nothing of tsr_gym, so reflection is allowed here and nowhere else.
"""
