/* descriptor.c - design.  (descriptor.h has the contract.)
 *
 * The client's constructor requires nine keys.  They are always written, first and in a fixed
 * order.  Without one of them the gateway waits until its handshake times out. */
#include "core/descriptor.h"
#include <assert.h>
#include "base/jw.h"

/* An unknown platform supports no sends, but its gateway needs a valid answer to its hello. */
const struct descriptor descriptor_relay = {
    .platform = "relay",
    .label = "Relay",
    .max_message_length = 4096,
    .markdown_dialect = "plain",
    .len_unit = "chars",
    .ops = 1u << ACTION_SEND,
};

void descriptor_write(struct buf *out, const struct descriptor *d)
{
    struct jw w = jw_begin(out);

    assert(d->platform != NULL && d->label != NULL && d->max_message_length > 0);
    assert(d->markdown_dialect != NULL && d->len_unit != NULL);
    jw_obj(&w);
    jw_ki64(&w, "contract_version", DESCRIPTOR_CONTRACT_VERSION);
    jw_kstr(&w, "platform", str_of(d->platform));
    jw_kstr(&w, "label", str_of(d->label));
    jw_ki64(&w, "max_message_length", d->max_message_length);
    jw_kbool(&w, "supports_draft_streaming", (d->ops & 1u << ACTION_DRAFT) != 0);
    jw_kbool(&w, "supports_edit", d->supports_edit);
    jw_kbool(&w, "supports_threads", (d->ops & 1u << ACTION_THREAD_CREATE) != 0);
    jw_kstr(&w, "markdown_dialect", str_of(d->markdown_dialect));
    jw_kstr(&w, "len_unit", str_of(d->len_unit));
    jw_kstr_opt(&w, "emoji", str_of(d->emoji));
    jw_kstr_opt(&w, "platform_hint", str_of(d->platform_hint));
    jw_kbool(&w, "pii_safe", d->pii_safe);
    jw_kbool(&w, "supports_context", d->supports_context);
    jw_karr(&w, "supported_ops");
    for (enum action_op op = 0; op < ACTION_UNKNOWN; op++)
        if (d->ops & 1u << op)
            jw_str(&w, str_of(action_op_name(op)));
    jw_end_arr(&w);
    jw_end_obj(&w);
}

void descriptor_write_frame(struct buf *out, const struct descriptor *d, bool newer)
{
    struct descriptor told = *d;

    if (!newer)
        told.ops &= ~(1u << ACTION_DRAFT | 1u << ACTION_TASK_CARD);
    buf_add_str(out, STR("{\"type\":\"descriptor\",\"descriptor\":"));
    descriptor_write(out, &told);
    buf_add_str(out, STR("}\n"));
}
