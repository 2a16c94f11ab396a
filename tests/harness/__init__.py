"""How the tests are run: what they cost, in which order, with which seed, and that nothing of them is left behind."""
