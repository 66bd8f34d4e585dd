"""Users' functions of one tuple, translated to the statements of a loop: `translate_update` and `translate_output`."""
