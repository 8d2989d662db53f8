"""The agent's report as one page with pictures: `elastio report --html` finds it by the entry point `elastio.plots`."""
