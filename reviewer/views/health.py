"""Whether this process can serve: for supervisors and load balancers."""

from django.db import DatabaseError, connection
from django.http import HttpRequest, JsonResponse
from django.views.decorators.http import require_safe


@require_safe
def healthz(request: HttpRequest) -> JsonResponse:
    """200 where the database answers and has our tables, else 503.

    Tells nothing else, asks for no sign-in, opens no session.
    """
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT FROM plans_plan LIMIT 0")
    except DatabaseError:
        return JsonResponse({"status": "unavailable"}, status=503)
    return JsonResponse({"status": "ok"})
