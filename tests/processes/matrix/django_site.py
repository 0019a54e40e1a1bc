"""A Django project around the matrix's server: `python -m tests.processes.matrix.django_site runserver`."""

from __future__ import annotations

import sys

import django
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.management import execute_from_command_line
from django.core.wsgi import get_wsgi_application
from django.urls import include, path

from oip_asgi.django import urls

from .models import make_server

settings.configure(
    SECRET_KEY="tests",
    ALLOWED_HOSTS=["*"],
    ROOT_URLCONF=__name__,
    WSGI_APPLICATION=f"{__name__}.application",
    MIDDLEWARE=["django.middleware.common.CommonMiddleware", "django.middleware.csrf.CsrfViewMiddleware"],
)
django.setup()

urlpatterns = [path("v2", include(urls(make_server())))]
application = get_wsgi_application()
asgi_application = get_asgi_application()

if __name__ == "__main__":
    execute_from_command_line(sys.argv)
