"""Settings, from the environment; a bad value stops the start with one sentence."""

import os
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import fontpkg_inter
import fontpkg_jetbrains_mono

from reviewer import installation
from reviewer.environment import Environment, broker_url

installation.complete_environment(os.environ)
_env = Environment(os.environ)

PROJECT = installation.PROJECT
DEBUG = _env.flag("DEBUG")
SECRET_KEY = _env.secret_key()
SEAL_KEYS = _env.seal_keys()
BASE_URL = _env.base_url()
_base = urlsplit(BASE_URL)
_is_https = _base.scheme == "https"

# --- Plans ---------------------------------------------------------------------------------------------------------
PLAN_LIFETIME = _env.seconds("PLAN_LIFETIME", 600)
PLAN_MAX_LIFETIME = _env.seconds("PLAN_MAX_LIFETIME", 86400)
CALLBACK_ALLOW_PRIVATE = _env.flag("CALLBACK_ALLOW_PRIVATE")
DEMO = _env.flag("DEMO")  # serves the demonstration's page; set by `up --demo`
COMMIT_TIMEOUT = timedelta(seconds=30)
CLAIM_OVERDUE_AFTER = timedelta(seconds=45)
STATE_TRUSTED_AFTER = timedelta(seconds=60)
LOCK_WAIT = timedelta(seconds=10)
WISHES_KEPT_FOR = timedelta(days=7)
EVENT_CAP_PER_MINUTE = 60
FAULT_HOOK = None  # no environment sets it: what breaks the desk on purpose brings settings of its own

# --- The log's tree: its name, its key (a file that only the sequencer needs), and what was signed last -------------
AUDIT_ORIGIN = _env.text("AUDIT_ORIGIN", "")
AUDIT_SIGNING_KEY = _env.text("AUDIT_SIGNING_KEY", "")
AUDIT_VERIFIER_KEY = _env.text("AUDIT_VERIFIER_KEY", "")
AUDIT_STATE_FILE = _env.text("AUDIT_STATE_FILE", AUDIT_SIGNING_KEY and f"{AUDIT_SIGNING_KEY}.signed")
AUDIT_HEARTBEAT = _env.seconds("AUDIT_HEARTBEAT", 3600)
AUDIT_WITNESSES = _env.witnesses("AUDIT_WITNESSES")

# --- Hosts and proxies ---------------------------------------------------------------------------------------------
ALLOWED_HOSTS = sorted({*_env.names("ALLOWED_HOSTS"), _base.hostname or "", "localhost", "127.0.0.1", "[::1]"} - {""})
# Only what these addresses say in X-Forwarded-For is believed; by default nobody's word is.
TRUSTED_PROXIES = _env.networks("TRUSTED_PROXIES")
CSRF_TRUSTED_ORIGINS = [BASE_URL]
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if TRUSTED_PROXIES else None

# --- Applications --------------------------------------------------------------------------------------------------
INSTALLED_APPS = [
    "reviewer",
    "reviewer.notifications",
    "reviewer.streams",
    "plans",
    "audit",
    "allauth",
    "allauth.account",
    "django_htmx",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.postgres",
    "django.contrib.staticfiles",
]
# The demonstration and its tables exist only where it is asked for; HOSTED_APPS are Django apps of the installation's
# own that register hosted operations.
HOSTED_APPS = _env.names("HOSTED_APPS")
INSTALLED_APPS += [*(["plans.demo"] if DEMO else []), *HOSTED_APPS]
MIDDLEWARE = [
    "reviewer.middleware.RequestIdMiddleware",
    "reviewer.middleware.PeerAddressMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "reviewer.middleware.PageHeadersMiddleware",
    "reviewer.middleware.MachineDoorsMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "reviewer.idle.IdleSessionMiddleware",
    "reviewer.access.PersonTokenMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "allauth.account.middleware.AccountMiddleware",
]
ROOT_URLCONF = "reviewer.urls"
WSGI_APPLICATION = "reviewer.wsgi.application"
APPEND_SLASH = True
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [PROJECT / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]

# --- Database: the restricted role by default, the owner for migrations -----------------------------------------------
# Statements are bound and prepared by the server: values never stand in a statement's text, nor in an error about it.
# psycopg prepares nothing while the threshold is None, which Django leaves it at; behind PgBouncer before 1.21 set 0.
PREPARE_THRESHOLD = _env.whole("DATABASE_PREPARE_THRESHOLD", 1, most=100) or None
_has_owner = bool(os.environ.get("DATABASE_OWNER_URL", "").strip())
DATABASES = {
    "default": {
        **_env.database("DATABASE_URL", prepare_threshold=PREPARE_THRESHOLD, server_side_binding=True),
        "CONN_MAX_AGE": _env.whole("DATABASE_CONN_MAX_AGE", 600, most=86400),
    },
    "owner": {
        **_env.database("DATABASE_OWNER_URL" if _has_owner else "DATABASE_URL"),
        "CONN_MAX_AGE": 0,
    },
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
CACHES = {"default": {"BACKEND": "django.core.cache.backends.db.DatabaseCache", "LOCATION": "reviewer_cache"}}
USE_TZ = True
TIME_ZONE = "UTC"
USE_I18N = False
LANGUAGE_CODE = "en"

# --- Requests ------------------------------------------------------------------------------------------------------
# The doors read bodies themselves and answer 413 at 1 MiB; this must not answer before them.
DATA_UPLOAD_MAX_MEMORY_SIZE = 4 * 1024 * 1024
DATA_UPLOAD_MAX_NUMBER_FIELDS = 200
CSRF_FAILURE_VIEW = "reviewer.views.errors.csrf_failure"
DEFAULT_EXCEPTION_REPORTER_FILTER = "reviewer.middleware.NothingShownFilter"

# --- Threads ---------------------------------------------------------------------------------------------------------
# Of each web process. Most of them wait (for the database, for a target): Django holds the GIL for most of a request,
# so more threads do no more work, but leave room beside those that wait for a slow target, which gets half of them.
WEB_THREADS = _env.whole("WEB_THREADS", 16, least=2, most=256)
# A body that has not arrived by then is refused; it was waited for without a thread.
BODY_WITHIN = _env.seconds("BODY_WITHIN", 20, most=600)

# --- Sessions, cookies, headers ------------------------------------------------------------------------------------
SESSION_ENGINE = "django.contrib.sessions.backends.db"
SESSION_COOKIE_AGE = 12 * 3600
# Left alone for so long, a session ends; what pages ask by themselves does not count as use. An hour at most is what
# NIST SP 800-63B-4 asks for at its second level.
SESSION_IDLE = _env.seconds("SESSION_IDLE", 3600, least=60, most=SESSION_COOKIE_AGE)
SESSION_COOKIE_NAME = "__Host-session" if _is_https else "plandesk_session"
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = _is_https
SESSION_COOKIE_HTTPONLY = CSRF_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
CSRF_COOKIE_NAME = "__Host-csrf" if _is_https else "plandesk_csrf"
SECURE_SSL_REDIRECT = False
SECURE_HSTS_SECONDS = _env.whole("HSTS_SECONDS", 31536000 if _is_https else 0, most=63072000)
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
SECURE_CROSS_ORIGIN_OPENER_POLICY = "same-origin"
CONTENT_SECURITY_POLICY = (
    "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)

# --- People --------------------------------------------------------------------------------------------------------
AUTH_USER_MODEL = "reviewer.Person"
AUTHENTICATION_BACKENDS = ["reviewer.access.PersonBackend"]
PASSWORD_HASHERS = ["django.contrib.auth.hashers.Argon2PasswordHasher"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 10}},
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
TOKEN_USE_NOTED_EVERY = timedelta(minutes=1)
LOGIN_URL = "account_login"
LOGIN_REDIRECT_URL = "/"
ACCOUNT_ADAPTER = "reviewer.access.SignInAdapter"
ACCOUNT_LOGIN_METHODS = {"email"}
ACCOUNT_SIGNUP_FIELDS = ["email*", "password1*"]
ACCOUNT_SIGNUP_ENABLED = False
ACCOUNT_USER_MODEL_USERNAME_FIELD = None
ACCOUNT_EMAIL_VERIFICATION = "none"
ACCOUNT_LOGOUT_REDIRECT_URL = "/login/"
ACCOUNT_SESSION_REMEMBER = True
ACCOUNT_DEFAULT_HTTP_PROTOCOL = _base.scheme
ACCOUNT_RATE_LIMITS = {"login": "60/m/ip", "login_failed": "20/m/ip,5/5m/key", "present_password": "5/5m/user"}

# --- Notifications -------------------------------------------------------------------------------------------------
EMAIL_HOST = _env.text("EMAIL_HOST", "")  # none: nobody is told by e-mail
EMAIL_BACKEND = f"django.core.mail.backends.{'smtp' if EMAIL_HOST else 'dummy'}.EmailBackend"
EMAIL_PORT = _env.whole("EMAIL_PORT", 25, least=1, most=65535)
EMAIL_HOST_USER = _env.text("EMAIL_HOST_USER", "")
EMAIL_HOST_PASSWORD = _env.text("EMAIL_HOST_PASSWORD", "")
EMAIL_USE_TLS = _env.flag("EMAIL_USE_TLS")
EMAIL_USE_SSL = _env.flag("EMAIL_USE_SSL")
EMAIL_TIMEOUT = _env.whole("EMAIL_TIMEOUT", 10, least=1, most=20)  # of each of a dozen steps; see LEASE
EMAIL_SUBJECT_PREFIX = ""
DEFAULT_FROM_EMAIL = _env.text("EMAIL_FROM", f"plandesk@{_base.hostname}")
NOTIFY_ALLOW_PRIVATE = _env.flag("NOTIFY_ALLOW_PRIVATE")
# How long before its expiry an undecided plan is told of again: to those who may decide, then to admins; but never
# before two thirds, and five sixths, of its life are over.
NOTIFY_SOON = _env.seconds("NOTIFY_SOON", 3600)
NOTIFY_ESCALATE = _env.seconds("NOTIFY_ESCALATE", 1800)

# --- Static files --------------------------------------------------------------------------------------------------
STATIC_URL = "/static/"
STATIC_ROOT = os.environ.get("STATIC_ROOT") or str(PROJECT / ".data" / "static")
STATICFILES_DIRS = [
    ("app/fonts/inter", Path(fontpkg_inter.__file__).parent / "files"),
    ("app/fonts/jetbrains-mono", Path(fontpkg_jetbrains_mono.__file__).parent / "files"),
]
# Without a collected folder (tests, a first look at the code) files are served from where they lie.
WHITENOISE_USE_FINDERS = _env.flag("STATIC_FROM_SOURCE")
WHITENOISE_AUTOREFRESH = False
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.InMemoryStorage"},
    "staticfiles": {
        "BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"
        if WHITENOISE_USE_FINDERS
        else "whitenoise.storage.CompressedManifestStaticFilesStorage"
    },
}

# --- Celery: a clock that sweeps rows; the site never waits for it ---------------------------------------------------
REDIS_URL = _env.redis()
CELERY_BROKER_URL = broker_url(REDIS_URL)

# --- Logs: one line each, never a body, a header or a local variable -------------------------------------------------
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "filters": {"deliberate": {"()": "reviewer.logs.DeliberateFilter"}},
    "formatters": {"line": {"()": "reviewer.logs.LineFormatter"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["stderr"], "level": _env.text("LOG_LEVEL", "INFO").upper()},
    "loggers": {
        "django": {"handlers": [], "propagate": True, "level": "INFO"},
        "django.server": {"handlers": [], "propagate": True},
        "django.request": {"level": "ERROR", "filters": ["deliberate"]},
        # One line for each beat of a clock that beats every few seconds tells nothing.
        "celery.beat": {"level": "WARNING"},
        "celery.worker.strategy": {"level": "WARNING"},
        "celery.app.trace": {"level": "WARNING"},
        "django.security.csrf": {"level": "ERROR"},
        # It tells of every request that it begins and that it ends.
        "mcp": {"level": "WARNING"},
        # A chat service's address is its secret.
        "apprise": {"handlers": [], "propagate": False, "level": "CRITICAL"},
        # Its warnings quote addresses whole, and those of chat services and subscriptions are secrets.
        "urllib3": {"level": "ERROR"},
    },
}
