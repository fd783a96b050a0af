"""The read `shipping.lookup`: where the goods of an invoice are. What agents look at before they plan."""

from plans.demo.models import Shipment
from plans.instants import format_instant


def look_up(invoice_id: str) -> list[dict[str, str]]:
    """The shipments of an invoice, in a stable order; none for one that is not known. Writes nothing."""
    return [
        {
            "shipment_id": row.shipment_id,
            "carrier": row.carrier,
            "status": row.status,
            "note": row.note,
            "tracking_url": row.tracking_url,
            "updated_at": format_instant(row.updated_at),
        }
        for row in Shipment.objects.filter(invoice_id=invoice_id).order_by("shipment_id")
    ]
