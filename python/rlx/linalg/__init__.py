"""Linear algebra with the names and conventions of NumPy and SciPy: functions of tensors `[…, M, N]`."""
