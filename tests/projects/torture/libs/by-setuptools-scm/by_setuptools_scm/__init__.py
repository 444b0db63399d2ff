"""Another one."""
