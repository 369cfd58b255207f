/* metrics_outbox.c - the part of /metrics that tells of the outbox and of files. */
#include <inttypes.h>
#include "base/mem.h"
#include "host/host.h"
#include "http/front_priv.h"
#include "media/media.h"
#include "platform/sender.h"

enum of { OF_U64, OF_SIZE, OF_I64 };
#define AT(member) offsetof(struct sender_stats, member)

static const struct {
    const char *name, *type, *help;
    size_t at;
    enum of of;
} outbox[] = {
    {"outbox_waiting", "gauge", "What agents said that waits for its turn.", AT(waiting), OF_SIZE},
    {"outbox_trying", "gauge", "What is being sent now.", AT(running), OF_SIZE},
    {"outbox_unknown", "gauge", "What may or may not have been delivered, kept for operators.",
     AT(kept_unknown), OF_SIZE},
    {"outbox_oldest_ms", "gauge", "The age of what has waited longest.", AT(oldest_ms), OF_I64},
    {"outbox_done_total", "counter", "Delivered.", AT(done), OF_U64},
    {"outbox_refused_total", "counter", "Refused by the platform for good.", AT(refused), OF_U64},
    {"outbox_unknown_total", "counter", "Ended without a known end.", AT(unknown), OF_U64},
    {"outbox_queued_total", "counter", "Took longer than their gateway waits.", AT(queued), OF_U64},
    {"outbox_expired_total", "counter", "Given up because of their age.", AT(expired), OF_U64},
    {"outbox_revived_total", "counter", "Gone on with after a restart.", AT(revived), OF_U64},
    {"outbox_requests_total", "counter", "Requests to the platform.", AT(requests), OF_U64},
};

static void head(struct buf *out, const char *name, const char *type, const char *help)
{
    buf_printf(out, "# HELP bellhop_%s %s\n# TYPE bellhop_%s %s\n", name, help, name, type);
}

static int64_t value_of(const struct sender_stats *s, size_t i)
{
    const char *at = (const char *)s + outbox[i].at;

    switch (outbox[i].of) {
    case OF_SIZE:
        return (int64_t) * (const size_t *)(const void *)at;
    case OF_I64:
        return *(const int64_t *)(const void *)at;
    default:
        return (int64_t) * (const uint64_t *)(const void *)at;
    }
}

static void write_outbox(struct front *f, struct buf *out, size_t i)
{
    struct sender_stats s;

    head(out, outbox[i].name, outbox[i].type, outbox[i].help);
    for (size_t k = 0; k < host_n_platforms(f->host); k++) {
        const struct platform *p = host_nth_platform(f->host, k);
        if (p->sender == NULL)
            continue;
        sender_stats(p->sender, &s);
        buf_printf(out, "bellhop_%s{platform=\"%s\",bot=\"%s\"} %" PRId64 "\n", outbox[i].name,
                   p->ops->name, p->bot, value_of(&s, i));
    }
}

static void write_one(struct buf *out, const char *name, const char *type, const char *help,
                      uint64_t v)
{
    head(out, name, type, help);
    buf_printf(out, "bellhop_%s %" PRIu64 "\n", name, v);
}

static void write_media(struct front *f, struct buf *out)
{
    struct media_stats s;

    if (f->media == NULL)
        return;
    media_stats(f->media, &s);
    write_one(out, "media_files", "gauge", "Files kept.", s.files);
    write_one(out, "media_bytes", "gauge", "Bytes of them, and of those under way.", s.bytes);
    write_one(out, "media_writing", "gauge", "Files being written.", s.writing);
    write_one(out, "media_written_total", "counter", "Files taken.", s.written);
    write_one(out, "media_expired_total", "counter", "Files gone because of their age.", s.expired);
    write_one(out, "media_refused_total", "counter", "Files refused for want of quota.",
              s.refused_quota);
}

void metrics_outbox(struct front *f, struct buf *out)
{
    for (size_t i = 0; i < ARRAY_LEN(outbox); i++)
        write_outbox(f, out, i);
    write_media(f, out);
}
