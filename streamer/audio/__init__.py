"""Recordings as blocks of samples: from a file, a pipe, or an array in memory."""
