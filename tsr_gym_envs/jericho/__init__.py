"""Any Z-machine story of the user's, under the contract of snapshots."""
