/* descriptor.h - the capabilities of a platform, which the relay sends to a gateway after hello. */
#pragma once
#include "base/buf.h"
#include "core/action.h"

struct descriptor {
    const char *platform, *label;
    int max_message_length; /* always positive */
    bool supports_edit;
    const char *markdown_dialect;      /* "plain", "markdown_v2", "discord", ... */
    const char *len_unit;              /* "chars" or "utf16" */
    const char *emoji, *platform_hint; /* NULL: left out */
    bool pii_safe;
    bool supports_context; /* events of shared chats may carry earlier messages */
    unsigned ops;          /* bit set of enum action_op */
};
#define DESCRIPTOR_CONTRACT_VERSION 1

extern const struct descriptor descriptor_relay; /* for an unknown platform */

void descriptor_write(struct buf *out, const struct descriptor *d); /* the object */
/* The line.  @newer: for a gateway of the newer generation; older ones know no drafts
 * and no task cards. */
void descriptor_write_frame(struct buf *out, const struct descriptor *d, bool newer);
