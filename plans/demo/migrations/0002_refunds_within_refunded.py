"""Refunds never exceed what their invoice says went back: so, with its own constraint, never its total."""

from django.db import migrations

FORWARDS = """
CREATE FUNCTION demo_check_refunds() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    said bigint;
    made numeric;
BEGIN
    SELECT refunded_cents INTO said FROM demo_invoice WHERE invoice_id = NEW.invoice_id FOR NO KEY UPDATE;
    SELECT COALESCE(SUM(amount_cents), 0) INTO made FROM demo_refund WHERE invoice_id = NEW.invoice_id;
    IF made > said THEN
        RAISE EXCEPTION 'The refunds of invoice % are %, and the invoice says %.', NEW.invoice_id, made, said
            USING ERRCODE = 'check_violation', CONSTRAINT = 'demo_refunds_are_within_refunded';
    END IF;
    RETURN NULL;
END;
$$;
CREATE TRIGGER demo_refunds_are_within_refunded
    AFTER INSERT OR UPDATE ON demo_refund FOR EACH ROW EXECUTE FUNCTION demo_check_refunds();
CREATE TRIGGER demo_refunded_covers_its_refunds
    AFTER UPDATE OF refunded_cents ON demo_invoice FOR EACH ROW EXECUTE FUNCTION demo_check_refunds();
"""

BACKWARDS = """
DROP TRIGGER demo_refunded_covers_its_refunds ON demo_invoice;
DROP TRIGGER demo_refunds_are_within_refunded ON demo_refund;
DROP FUNCTION demo_check_refunds();
"""


class Migration(migrations.Migration):
    dependencies = [("demo", "0001_billing")]

    operations = [migrations.RunSQL(FORWARDS, BACKWARDS)]
