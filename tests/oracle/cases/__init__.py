"""The requests that are sent to both servers, one module for each subject."""
