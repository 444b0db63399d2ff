"""Mixed calls against one runtime for long, with everything that goes wrong; nothing may grow."""
