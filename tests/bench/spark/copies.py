def run(stage): pass
