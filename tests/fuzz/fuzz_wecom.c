/* A hostile callback: the XML of the envelope, the ciphertext inside of it, and the message inside
 * of that. */
#include <stdlib.h>
#include "core/event.h"
#include "platform/wecom/inbound.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_message(struct wecom_xml *x, struct str text)
{
    static struct wecom_out out;
    struct buf frame = BUF_INIT;

    if (!wecom_xml_parse(x, text))
        return;
    if (wecom_normalize(x, STR("7"), &out) == WEBHOOK_EVENT) {
        event_write(&frame, &out.ev);
        if (out.ev.event_id.n == 0 || out.ev.chat_id.n == 0 || frame.n == 0)
            abort();
    }
    buf_done(&frame);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t key[WECOM_KEY_BYTES] = {1, 2, 3};
    static struct wecom_xml *x;
    struct str text = str_make(data, size);
    struct buf plain = BUF_INIT;
    uint8_t parsed[WECOM_KEY_BYTES];

    if (x == NULL)
        x = wecom_xml_new();
    check_message(x, text);
    if (wecom_decrypt(key, STR("corp"), text, &plain))
        check_message(x, buf_str(&plain));
    if (wecom_xml_parse(x, text) && wecom_xml_get(x, "Encrypt").n > 0)
        (void)wecom_decrypt(key, STR("corp"), wecom_xml_get(x, "Encrypt"), &plain);
    (void)wecom_key_parse(text, parsed);
    if (wecom_signature_ok(STR("token"), STR("1"), STR("2"), STR("x"), text))
        abort(); /* nobody guesses it */
    buf_done(&plain);
    return 0;
}
