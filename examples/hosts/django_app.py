"""A Django project in one file, with accounts and a database, whose model is served over the Open Inference Protocol.

    python examples/hosts/django_app.py runserver 8000 --noreload
    uvicorn --app-dir examples/hosts --port 8000 django_app:asgi_application
    curl -u ada:lovelace http://127.0.0.1:8000/v2/models/iris

The first is for development, the second for ASGI; under WSGI it is `gunicorn --chdir examples/hosts django_app:application`. Django's
middleware covers /v2 as it covers every view; `public=` marks health as open, for probes have no password.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import django
from django.conf import settings
from django.contrib.auth import authenticate
from django.core.management import call_command, execute_from_command_line
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import include, path, resolve
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from werkzeug.datastructures import Authorization

from oip_asgi import InferenceContext, InferenceServer, TensorSpec
from oip_asgi.django import urls

# The project as it was ---------------------------------------------------------------------------------------------

settings.configure(
    SECRET_KEY=os.environ.get("SECRET_KEY", "an example's, that protects nothing"),
    ALLOWED_HOSTS=["*"],
    ROOT_URLCONF=__name__,
    WSGI_APPLICATION=f"{__name__}.application",
    INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes"],
    MIDDLEWARE=[
        "django.middleware.security.SecurityMiddleware",
        "django.middleware.common.CommonMiddleware",
        "django.middleware.csrf.CsrfViewMiddleware",
        f"{__name__}.basic_auth",
    ],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.environ.get("DATABASE_PATH", "predictions.db")}},
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    USE_TZ=True,
)
django.setup()

# models can be imported only after the settings
from django.contrib.auth.models import User  # noqa: E402
from django.core.asgi import get_asgi_application  # noqa: E402
from django.core.wsgi import get_wsgi_application  # noqa: E402
from django.db import connection, models  # noqa: E402


class Prediction(models.Model):
    user: Any = models.ForeignKey(User, models.CASCADE)
    flowers: Any = models.IntegerField()

    class Meta:
        app_label = "example"


def create_tables() -> None:
    """What migrations do in a project of more than one file."""
    call_command("migrate", verbosity=0)
    if Prediction._meta.db_table not in connection.introspection.table_names():
        with connection.schema_editor() as editor:
            editor.create_model(Prediction)
        User.objects.create_user("ada", password="lovelace")


def set_user(request: Any, user: Any) -> None:
    """Set both `user` and `auser()`, as Django's own AuthenticationMiddleware does: code that is `async def` awaits the second."""

    async def auser() -> Any:
        return user

    request.user, request.auser = user, auser


def basic_auth(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    def middleware(request: HttpRequest) -> HttpResponse:
        if getattr(resolve(request.path_info).func, "login_required", True):  # as Django's own LoginRequiredMiddleware looks
            given = Authorization.from_header(request.headers.get("Authorization"))
            user = None if given is None else authenticate(request, username=given.username, password=given.password)
            if user is None:
                return JsonResponse({"error": "name and password, please"}, status=401, headers={"WWW-Authenticate": "Basic"})
            set_user(request, user)
        return get_response(request)

    return middleware


def history(request: HttpRequest) -> HttpResponse:
    flowers = Prediction.objects.filter(user=request.user).aggregate(models.Sum("flowers"))["flowers__sum"]
    return JsonResponse({"user": request.user.get_username(), "flowers": flowers or 0})


# And its model -----------------------------------------------------------------------------------------------------

data = load_iris()
classifier = make_pipeline(StandardScaler(), LogisticRegression())
server = InferenceServer("django-example")


def fit() -> None:
    classifier.fit(data.data, data.target)


@server.model(
    "iris",
    inputs=[TensorSpec("x", "FP64", [-1, 4])],
    outputs=[TensorSpec("species", "BYTES", [-1])],
    load=fit,
)
def iris(x: Any, context: InferenceContext) -> Any:
    Prediction.objects.create(user=context.transport.user, flowers=len(x))
    return data.target_names[classifier.predict(x)]


urlpatterns = [path("history", history), path("v2", include(urls(server, public=["health"])))]

create_tables()
application = get_wsgi_application()
asgi_application = get_asgi_application()

if __name__ == "__main__":
    execute_from_command_line(sys.argv)
