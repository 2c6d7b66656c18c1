"""From graphs of integers to hardware: layers with streams between them, as modules of CIRCT's hw, comb and seq dialects."""
