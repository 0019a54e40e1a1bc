"""What this package knows of frameworks: which object is what, which routes and dependencies an application
has, and how to add ours."""
