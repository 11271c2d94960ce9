"""The programs that keep running: controller, worker, chores, and all in one."""
