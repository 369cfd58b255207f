/* A form from a hostile client: what is read can be written and read again, and sorting loses
 * nothing. */
#include <stdlib.h>
#include "edge/form.h"
#include "platform/twilio/inbound.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_again(struct form *f)
{
    static struct form again;
    struct buf out = BUF_INIT;

    for (size_t i = 0; i < f->n; i++)
        form_add_str(&out, f->pairs[i].name, f->pairs[i].value);
    if (!form_parse(&again, buf_str(&out)) || again.n != f->n)
        abort();
    for (size_t i = 0; i < f->n; i++)
        if (!str_eq(f->pairs[i].name, again.pairs[i].name) ||
            !str_eq(f->pairs[i].value, again.pairs[i].value))
            abort();
    buf_done(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct form f;
    static struct twilio_out out;
    struct str text = str_make(data, size);
    struct buf url = BUF_INIT;

    if (form_parse(&f, text)) {
        check_again(&f);
        if (twilio_signature_ok(STR("key"),
                                &(struct twilio_request){.url = STR("https://a/b"),
                                                         .form = &f,
                                                         .signature = form_get(&f, "s")}))
            abort(); /* nobody guesses an HMAC */
        if (twilio_normalize(&f, STR("bot"), STR("AC1"), &out) == WEBHOOK_EVENT &&
            (out.ev.event_id.n == 0 || !twilio_address_ok(out.ev.chat_id)))
            abort();
    }
    if (size > 8)
        twilio_other_url(text, &url);
    buf_done(&url);
    return 0;
}
