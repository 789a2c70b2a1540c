"""What the shop sells and what shoppers are asked for: files, the store on disk, goals, prices."""
