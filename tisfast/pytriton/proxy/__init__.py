"""What passes between the server and a callable."""
