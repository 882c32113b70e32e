"""Ends public calls, and calls in threads, so that nothing stays locked and nothing but a SafewriteError comes out."""
