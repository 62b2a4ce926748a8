"""Small things that every package needs: errors, files, progress bars, devices, blocks of rows, deadlines."""
