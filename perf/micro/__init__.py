"""One benchmark for each hot module; README.md says what each prints."""
