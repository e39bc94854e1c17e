"""Tables: how they are declared, cached and looked at; nothing of Keras."""
