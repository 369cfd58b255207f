/* metrics.c - /metrics in Prometheus' text format, /healthz and /readyz.
 *
 * Metrics are numbers, and names of platforms, bots and states.  They name no tenant, instance or
 * chat, so that a scrape stays small with many tenants and tells nothing about them.
 *
 * /healthz says that the loop and the store's threads make progress.  /readyz says that the server
 * accepts traffic.  An unreachable database leaves /healthz good: its writes fail in time. */
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/jw.h"
#include "base/limits.h"
#include "base/mem.h"
#include "cluster/node.h"
#include "data/data.h"
#include "dispatch/dispatch.h"
#include "edge/door.h"
#include "http/front_priv.h"
#include "media/media.h"
#include "net/loop.h"
#include "net/trunk.h"
#include "platform/sender.h"
#include "relay/latency.h"
#include "relay/relay.h"
#include "skills/skills.h"
#include "store/journal_disk.h"
#include "store/jobs.h"
#include "store/store.h"
#include "tenancy/facts.h"
#include "tenancy/keys.h"
#include "tenancy/pairing.h"

static void head(struct buf *out, const char *name, const char *type, const char *help)
{
    buf_printf(out, "# HELP bellhop_%s %s\n# TYPE bellhop_%s %s\n", name, help, name, type);
}

/* ---- rows ---- */

static const struct {
    const char *name, *label, *what; /* rows of one name are adjacent; the first has @what */
    size_t offset;
} counters[] = {
#define C(name, label, member, words) \
    { \
        name, label, words, offsetof(struct relay_counters, member) \
    }
    C("events_accepted", "", accepted, "Events taken in for at least one instance."),
    C("events_duplicate", "", duplicates, "Events seen before and not delivered again."),
    C("events_unrouted", "", unrouted, "Events that no route leads anywhere."),
    C("events_gated", "", gated, "Events that were for somebody, and nobody was to receive them."),
    C("events_refused", "{reason=\"busy\"}", refused_busy,
      "Events the platform must send again later."),
    C("events_refused", "{reason=\"store\"}", refused_store, NULL),
    C("events_stopped", "", stopped, "Messages that were /stop and became interrupts."),
    C("events_routed", "", routings, "Times the route of an event was looked up."),
    C("events_judged", "", judgements, "Times the gate was asked about an event."),
    C("events_linked", "", linked, "Messages that were /link and linked a person."),
    C("deliveries_sent", "", delivered, "Deliveries sent for the first time."),
    C("deliveries_resent", "", redelivered, "Deliveries sent again on a new socket."),
    C("deliveries_acked", "", acked, "Deliveries acknowledged by their gateway."),
    C("deliveries_settled", "", settled, "Deliveries that ended: acked, purged or expired."),
    C("deliveries_parked", "", parked, "Deliveries set aside after too many attempts."),
    C("deliveries_edited", "", revised, "Waiting deliveries whose message was edited."),
    C("messages_joined", "", joined, "Messages that became part of a burst (`debounce`)."),
    C("deliveries_over_allowance", "", over_allowance, "Deliveries that an allowance refused."),
    C("deliveries_deleted", "", retracted, "Waiting deliveries whose message was deleted."),
    C("deliveries_purged", "", purged, "Deliveries deleted by an operator."),
    C("sessions_opened", "", sessions_opened, "Gateway sockets that were let in."),
    C("sessions_away", "", sessions_away, "Gateways found silent on an open socket."),
    C("frames_malformed", "", frames_malformed, "Frames from gateways that could not be read."),
    C("frames_unknown", "", frames_unknown, "Frames of a type this server does not know."),
    C("actions", "", actions, "Actions gateways asked for."),
    C("actions_refused", "", actions_refused, "Actions refused: a foreign chat, or not possible."),
    C("actions_limited", "", actions_limited, "Actions refused: too many per second."),
    C("actions_timed_out", "", actions_timed_out, "Actions the platform never answered."),
    C("interrupts_in", "", interrupts_in, "Interrupts asked for by gateways."),
    C("interrupts_out", "", interrupts_out, "Interrupts sent to gateways."),
    C("interrupts_dropped", "", interrupts_dropped, "Interrupts nobody was there for."),
    C("pokes", "", pokes, "Wake URLs rung."),
    C("pokes_failed", "", pokes_failed, "Wake URLs that did not answer."),
    C("flips", "", sleeps, "Gateways that went to sleep in good order."),
#undef C
};

static void gauge(struct buf *out, const char *name, const char *what, int64_t v)
{
    head(out, name, "gauge", what);
    buf_printf(out, "bellhop_%s %" PRId64 "\n", name, v);
}

static void counter(struct buf *out, const char *name, const char *what, uint64_t v)
{
    head(out, name, "counter", what);
    buf_printf(out, "bellhop_%s %" PRIu64 "\n", name, v);
}

/* ---- the outbox, and files ---- */

#define AT(member) offsetof(struct sender_stats, member)

static const struct {
    const char *name, *type, *help;
    size_t at;
    enum { OF_U64, OF_SIZE, OF_I64 } of;
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

static void outbox_part(struct front *f, struct buf *out)
{
    struct sender_stats s;

    for (size_t i = 0; i < ARRAY_LEN(outbox); i++) {
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
}

static void media_part(struct front *f, struct buf *out)
{
    struct media_stats s;

    if (f->media == NULL)
        return;
    media_stats(f->media, &s);
    gauge(out, "media_files", "Files kept.", (int64_t)s.files);
    gauge(out, "media_bytes", "Bytes of them, and of those under way.", (int64_t)s.bytes);
    gauge(out, "media_writing", "Files being written.", (int64_t)s.writing);
    counter(out, "media_written_total", "Files taken.", s.written);
    counter(out, "media_expired_total", "Files gone because of their age.", s.expired);
    counter(out, "media_refused_total", "Files refused for want of quota.", s.refused_quota);
}

/* ---- everything else ---- */

static void relay_part(struct front *f, struct buf *out)
{
    const struct relay_counters *c = relay_counters(f->relay);

    for (size_t i = 0; i < ARRAY_LEN(counters); i++) {
        char name[64];
        uint64_t v;
        snprintf(name, sizeof name, "%s_total", counters[i].name);
        memcpy(&v, (const char *)c + counters[i].offset, sizeof v);
        if (counters[i].what != NULL)
            head(out, name, "counter", counters[i].what);
        buf_printf(out, "bellhop_%s%s %" PRIu64 "\n", name, counters[i].label, v);
    }
}

static void gate_part(struct front *f, struct buf *out)
{
    const struct relay_counters *c = relay_counters(f->relay);

    head(out, "gate_verdicts_total", "counter",
         "Verdicts on the candidates of events, by the gate's reason.");
    for (size_t i = 0; i < ARRAY_LEN(c->verdicts); i++)
        buf_printf(out, "bellhop_gate_verdicts_total{received=\"%s\",reason=\"%s\"} %" PRIu64 "\n",
                   gate_is_yes((enum gate_reason)i) ? "yes" : "no",
                   gate_reason_word((enum gate_reason)i), c->verdicts[i]);
}

static void latency_part(struct front *f, struct buf *out)
{
    static const char *const untils[] = {"sent", "acked"};

    head(out, "delivery_seconds", "histogram",
         "From accepting an event until its delivery was sent for the first time, or acked.");
    for (int k = 0; k < 2; k++) {
        const struct latency_waits *w = relay_waits_of(f->relay, k == 1);
        uint64_t n = 0;
        for (size_t i = 0; i <= LATENCY_BOUNDS; i++) {
            buf_printf(out, "bellhop_delivery_seconds_bucket{until=\"%s\",le=\"", untils[k]);
            if (i < LATENCY_BOUNDS)
                buf_printf(out, "%g", (double)latency_bounds_ms[i] / 1e3);
            else
                buf_add_z(out, "+Inf");
            n += w->n[i];
            buf_printf(out, "\"} %" PRIu64 "\n", n);
        }
        buf_printf(out,
                   "bellhop_delivery_seconds_sum{until=\"%s\"} %g\n"
                   "bellhop_delivery_seconds_count{until=\"%s\"} %" PRIu64 "\n",
                   untils[k], (double)w->total_ms / 1e3, untils[k], n);
    }
}

static void journal_part(struct front *f, struct buf *out)
{
    struct journal_stats s;

    if (f->journal == NULL)
        return;
    journal_disk_stats(f->journal, &s);
    gauge(out, "why_bytes", "Records of `bellhop why` on disk.", (int64_t)s.bytes);
    counter(out, "why_written_bytes_total", "Bytes of records written.", s.records_bytes);
    counter(out, "why_dropped_total", "Blocks of records that the disk was too slow or full for.",
            s.dropped_blocks + s.failed);
    counter(out, "why_thinned_total", "Events of strangers that were not recorded.", s.thinned);
}

static void pairing_part(struct front *f, struct buf *out)
{
    struct pairing_stats s;

    pairing_stats(f->pairing, &s);
    head(out, "pairing_people", "gauge", "People in the queue of `bellhop pairing`, by state.");
    buf_printf(out,
               "bellhop_pairing_people{state=\"waiting\"} %" PRIu64 "\n"
               "bellhop_pairing_people{state=\"denied\"} %" PRIu64 "\n"
               "bellhop_pairing_people{state=\"blocked\"} %" PRIu64 "\n",
               s.waiting, s.denied, s.blocked);
    head(out, "pairing_decisions_total", "counter", "Decisions about them.");
    buf_printf(out,
               "bellhop_pairing_decisions_total{kind=\"approved\"} %" PRIu64 "\n"
               "bellhop_pairing_decisions_total{kind=\"denied\"} %" PRIu64 "\n"
               "bellhop_pairing_decisions_total{kind=\"blocked\"} %" PRIu64 "\n",
               s.approvals, s.denials, s.blocks);
    counter(out, "pairing_messages_total", "Messages of people who are linked to nobody.",
            s.messages);
    counter(out, "pairing_pushed_out_total", "People who left the full queue undecided.",
            s.pushed_out);
    counter(out, "pairing_receipts_total", "Receipts to these people.", s.receipts);
    counter(out, "pairing_writes_total", "Writes of the queue, of up to 256 people each.",
            s.writes);
}

static void instance_part(struct front *f, struct buf *out)
{
    struct relay_tally t;
    int64_t now = clock_wall_ms(loop_clock(f->loop));

    relay_tally(f->relay, &t);
    head(out, "instances", "gauge",
         "Instances by state; `never`: no gateway of it has connected yet.");
    buf_printf(out,
               "bellhop_instances{state=\"live\"} %" PRIu64 "\n"
               "bellhop_instances{state=\"away\"} %" PRIu64 "\n"
               "bellhop_instances{state=\"asleep\"} %" PRIu64 "\n"
               "bellhop_instances{state=\"never\"} %" PRIu64 "\n",
               t.in_state[RELAY_LIVE], t.in_state[RELAY_AWAY], t.in_state[RELAY_ASLEEP],
               t.in_state[RELAY_NEVER]);
    gauge(out, "sessions", "Gateway sockets open now.", (int64_t)t.sessions);
    gauge(out, "mailbox_entries", "Deliveries waiting in all mailboxes.", (int64_t)t.entries);
    gauge(out, "mailbox_bytes", "Their size.", (int64_t)t.bytes);
    gauge(out, "mailbox_unacked", "Deliveries sent and not settled yet.", (int64_t)t.unacked);
    gauge(out, "mailbox_parked", "Deliveries set aside and waiting for an operator.",
          (int64_t)t.parked);
    gauge(out, "mailbox_oldest_age_ms", "Age of the oldest waiting delivery.",
          t.oldest_ms != 0 ? now - t.oldest_ms : 0);
}

static void wait_part(struct buf *out, const struct store_waits waits[STORE_WAITS])
{
    static const char *const names[STORE_WAITS] = {
        [STORE_WAIT_QUEUE] = "queue",
        [STORE_WAIT_CHECKPOINT] = "checkpoint",
        [STORE_WAIT_COMMIT] = "commit",
        [STORE_WAIT_ANSWER] = "answer",
    };

    head(out, "accept_wait_seconds", "histogram",
         "What messages that were written to disk waited for, before their platform was answered.");
    for (size_t k = 0; k < STORE_WAITS; k++) {
        uint64_t rows = 0;
        for (size_t i = 0; i <= STORE_WAIT_BOUNDS; i++) {
            buf_printf(out, "bellhop_accept_wait_seconds_bucket{for=\"%s\",le=\"", names[k]);
            if (i < STORE_WAIT_BOUNDS)
                buf_printf(out, "%g", (double)store_wait_bounds_us[i] / 1e6);
            else
                buf_add_z(out, "+Inf");
            rows += waits[k].rows[i];
            buf_printf(out, "\"} %" PRIu64 "\n", rows);
        }
        buf_printf(out,
                   "bellhop_accept_wait_seconds_sum{for=\"%s\"} %g\n"
                   "bellhop_accept_wait_seconds_count{for=\"%s\"} %" PRIu64 "\n",
                   names[k], (double)waits[k].total_us / 1e6, names[k], rows);
    }
}

static void store_part(struct front *f, struct buf *out)
{
    struct store_stats s;

    f->store->ops->stats(f->store, &s);
    counter(out, "store_commits_total", "Transactions committed.", s.commits);
    counter(out, "store_ops_total", "Writes and reads done.", s.ops);
    counter(out, "store_failed_ops_total", "Writes and reads that failed.", s.failed_ops);
    counter(out, "store_shrunk_total", "Rows that never had to be written.", s.shrunk);
    counter(out, "store_rows_written_total", "Mailbox rows written.", s.rows_written);
    counter(out, "store_keys_written_total", "Deduplication keys written.", s.keys_written);
    gauge(out, "store_queued", "Operations waiting for the store.", (int64_t)s.queued);
    gauge(out, "store_queue_age_us", "How long the oldest write has waited.", s.queue_age_us);
    gauge(out, "store_reads_queued", "Reads waiting for the store.", (int64_t)s.reads_queued);
    gauge(out, "store_read_age_us", "How long the read under way has taken.", s.read_age_us);
    counter(out, "store_reads_total", "Reads done.", s.reads);
    counter(out, "store_reads_cancelled_total", "Reads called off in time.", s.cancelled);
    gauge(out, "store_last_commit_us", "Duration of the last transaction.", s.last_commit_us);
    wait_part(out, s.waits);
    gauge(out, "store_bytes", "Size of the database on disk.", s.bytes_on_disk);
    gauge(out, "store_free_bytes", "Room for more; -1 where it is not known.", s.free_bytes);
    gauge(out, "store_full", "1 when new messages are refused for want of room.", s.full);
    gauge(out, "store_healthy", "1 when the last transaction succeeded.", s.healthy);
}

static void limits_part(struct front *f, struct buf *out)
{
    head(out, "limit_held", "gauge", "What is held now of a limit, all together.");
    for (int i = 0; i < LIMIT_N; i++)
        buf_printf(out, "bellhop_limit_held{limit=\"%s\"} %" PRIu64 "\n", limit_rows[i].name,
                   ledger_held(f->ledger, NULL, (enum limit)i));
    head(out, "limit_refused_total", "counter", "What was refused because of a limit.");
    for (int i = 0; i < LIMIT_N; i++)
        buf_printf(out, "bellhop_limit_refused_total{limit=\"%s\"} %" PRIu64 "\n",
                   limit_rows[i].name, ledger_refused(f->ledger, (enum limit)i));
}

static void dispatch_part(struct front *f, struct buf *out)
{
    const struct dispatch_counters *n = dispatch_counters(f->dispatch);

    counter(out, "dispatch_delivered_total", "Payloads taken for agents.", n->delivered);
    counter(out, "dispatch_repeated_total", "Repeats, answered with the first receipt.",
            n->repeated);
    counter(out, "dispatch_woken_total", "Wakes that rang somebody.", n->woken);
    counter(out, "dispatch_requests_total", "Requests for an answer.", n->requested);
    counter(out, "dispatch_timed_out_total", "Requests not answered in time.", n->timed_out);
    counter(out, "dispatch_replies_total", "What agents said.", n->replied);
    counter(out, "dispatch_failed_total", "Calls that ended with an error.", n->failed);
}

/* The skill store and the data store, by name. */
static void program_part(struct front *f, struct buf *out)
{
    struct db_jobs_stats s, d;
    const struct list *unused;

    skills_stats(f->skills, &s);
    data_stats(f->data, &d);
    head(out, "program_store_calls_total", "counter", "Calls of the skill and data stores.");
    buf_printf(out,
               "bellhop_program_store_calls_total{store=\"skills\"} %" PRIu64
               "\nbellhop_program_store_calls_total{store=\"data\"} %" PRIu64 "\n",
               s.calls, d.calls);
    head(out, "program_store_failed_total", "counter",
         "Calls that were too many, or that the disk refused.");
    buf_printf(out,
               "bellhop_program_store_failed_total{store=\"skills\"} %" PRIu64
               "\nbellhop_program_store_failed_total{store=\"data\"} %" PRIu64 "\n",
               s.failed, d.failed);
    head(out, "program_store_healthy", "gauge", "1 when the last write reached the disk.");
    buf_printf(out,
               "bellhop_program_store_healthy{store=\"skills\"} %d\n"
               "bellhop_program_store_healthy{store=\"data\"} %d\n",
               s.healthy, d.healthy);
    gauge(out, "keys", "Keys of programs and provision tokens.",
          (int64_t)keys_all(f->keys, &unused));
}

static void platform_part(struct front *f, struct buf *out)
{
    size_t n = host_n_platforms(f->host);
    int64_t now = clock_wall_ms(loop_clock(f->loop));

    head(out, "platform_up", "gauge", "1 when the platform has no problem an operator must solve.");
    for (size_t i = 0; i < n; i++) {
        const struct platform *p = host_nth_platform(f->host, i);
        buf_printf(out, "bellhop_platform_up{platform=\"%s\",bot=\"%s\"} %d\n", p->ops->name,
                   p->bot, p->problem == NULL);
    }
    head(out, "platform_deaf", "gauge", "1 when the platform is connected but seems deaf.");
    for (size_t i = 0; i < n; i++) {
        const struct platform *p = host_nth_platform(f->host, i);
        char why[160];
        buf_printf(out, "bellhop_platform_deaf{platform=\"%s\",bot=\"%s\"} %d\n", p->ops->name,
                   p->bot, platform_is_deaf(p, now, why));
    }
    head(out, "platform_events_total", "counter", "Events that the platform's bot took in.");
    for (size_t i = 0; i < n; i++) {
        const struct platform *p = host_nth_platform(f->host, i);
        buf_printf(out, "bellhop_platform_events_total{platform=\"%s\",bot=\"%s\"} %" PRIu64 "\n",
                   p->ops->name, p->bot, p->n.events);
    }
    head(out, "platform_last_event_age_ms", "gauge", "Since the platform was last heard of.");
    for (size_t i = 0; i < n; i++) {
        const struct platform *p = host_nth_platform(f->host, i);
        if (p->last_event_ms != 0)
            buf_printf(out,
                       "bellhop_platform_last_event_age_ms{platform=\"%s\",bot=\"%s\"} %" PRId64
                       "\n",
                       p->ops->name, p->bot, now - p->last_event_ms);
    }
}

static void loop_part(struct front *f, struct buf *out)
{
    struct loop_stalls s;
    uint64_t turns = 0;

    loop_stalls(f->loop, &s);
    head(out, "loop_stall_seconds", "histogram",
         "CPU time of one turn of the loop, during which nobody else is served.");
    for (int i = 0; i < LOOP_STALL_BUCKETS; i++) {
        turns += s.turns[i];
        if (i + 1 < LOOP_STALL_BUCKETS)
            buf_printf(out, "bellhop_loop_stall_seconds_bucket{le=\"%g\"} %" PRIu64 "\n",
                       (double)loop_stall_bounds_us[i] / 1e6, turns);
        else
            buf_printf(out, "bellhop_loop_stall_seconds_bucket{le=\"+Inf\"} %" PRIu64 "\n", turns);
    }
    buf_printf(out,
               "bellhop_loop_stall_seconds_sum %.6f\nbellhop_loop_stall_seconds_count %" PRIu64
               "\n",
               (double)s.sum_us / 1e6, turns);
}

static int64_t resident_bytes(void)
{
    FILE *fp = fopen("/proc/self/statm", "re");
    long pages = 0;

    if (fp == NULL)
        return 0;
    if (fscanf(fp, "%*s %ld", &pages) != 1)
        pages = 0;
    fclose(fp);
    return (int64_t)pages * sysconf(_SC_PAGESIZE);
}

/* Metrics of every process, also of one that stands by. */
static void process_part(struct front *f, struct buf *out)
{
    head(out, "build_info", "gauge", "Always 1.");
    buf_printf(out, "bellhop_build_info{version=\"%s\"} 1\n", BELLHOP_VERSION);
    gauge(out, "start_time_ms", "Unix time of the start.", f->started_ms);
    gauge(out, "draining", "1 while going down.", f->draining || f->leaving);
    if (f->node != NULL) {
        gauge(out, "node_epoch", "Of the lease under which this process serves.",
              (int64_t)node_epoch(f->node));
        gauge(out, "node_lease_left_ms", "How long that lasts unless it is renewed.",
              node_left_ms(f->node));
        gauge(out, "node_carried_connections",
              "Connections that other nodes carry here, or that this one carries elsewhere.",
              (int64_t)trunk_tally(f->server).connections);
    }
    gauge(out, "resident_bytes", "Memory of the process.", resident_bytes());
    gauge(out, "http_connections", "Connections open now, WebSockets included.",
          (int64_t)http_server_connections(f->server));
}

static void heart_part(struct front *f, struct buf *out)
{
    struct list *unused;

    counter(out, "webhooks_turned_away_total",
            "Webhooks answered 429 before their signature was looked at.",
            door_turned_away(f->door));
    gauge(out, "gateways", "Gateways known, revoked ones included.",
          (int64_t)facts_gateways(f->facts, &unused));
    gauge(out, "routes", "Routes.", (int64_t)facts_routes(f->facts, &unused));
}

/* A process that stands by has only the last ones. */
static void (*const parts[])(struct front *f, struct buf *out) = {
    relay_part, gate_part,   latency_part,  instance_part, journal_part,  pairing_part,
    store_part, limits_part, dispatch_part, program_part,  platform_part, outbox_part,
    media_part, heart_part,  loop_part,     process_part};
enum { STANDBY_PARTS = 2 };

void metrics_show(struct front *f, struct http_req *req)
{
    struct buf out = BUF_INIT;

    if (!front_is_operator(f, req))
        return;
    for (size_t i = f->standing_by ? ARRAY_LEN(parts) - STANDBY_PARTS : 0; i < ARRAY_LEN(parts);
         i++)
        parts[i](f, &out);
    http_answer(f->server, http_req_id(req),
                &(struct http_answer){.status = 200,
                                      .content_type = "text/plain; version=0.0.4; charset=utf-8",
                                      .body = buf_str(&out)});
    buf_done(&out);
}

/* ---- /healthz, /readyz ---- */

#define SLOW_US 3000000   /* a write that waits longer: not ready */
#define STUCK_US 60000000 /* an operation that takes longer: a thread hangs */

bool health_store_is_stuck(struct store *store)
{
    struct store_stats st;

    store->ops->stats(store, &st);
    return st.queue_age_us > STUCK_US || st.read_age_us > STUCK_US;
}

void health_live(struct front *f, struct http_req *req)
{
    if (health_store_is_stuck(f->store)) {
        http_answer_error(f->server, http_req_id(req), 503, "store_stuck",
                          "A thread of the store has been stuck for over a minute.");
        return;
    }
    http_answer(f->server, http_req_id(req),
                &(struct http_answer){.status = 200, .body = STR("{\"status\":\"ok\"}")});
}

/* While another node holds the lease. */
void health_standby(struct front *f, struct http_req *req)
{
    bool admin = http_listener_tag(req) == front_admin_tag;

    if (admin && (str_eq(http_path(req), STR("/admin/nodes")) ||
                  str_eq(http_path(req), STR("/admin/drain"))))
        front_ops(f, req);
    else if (str_eq(http_path(req), STR("/metrics")))
        metrics_show(f, req);
    else if (str_eq(http_path(req), STR("/healthz")))
        http_answer(f->server, http_req_id(req),
                    &(struct http_answer){.status = 200, .body = STR("{\"status\":\"standby\"}")});
    else if (str_eq(http_path(req), STR("/readyz")) && trunk_is_awaited(f->server))
        http_answer(f->server, http_req_id(req),
                    &(struct http_answer){.status = 200, .body = STR("{\"status\":\"ready\"}")});
    else
        front_retry(f, req, "standby", "This process stands by: another one serves.");
}

void health_ready(struct front *f, struct http_req *req)
{
    struct store_stats st;
    struct buf body = BUF_INIT;
    const char *not_ready = NULL, *why = NULL;

    f->store->ops->stats(f->store, &st);
    if (f->draining || (f->leaving && !http_is_carried(req))) { /* carried: that node goes on */
        not_ready = "draining";
        why = "This server is going down.";
    } else if (!st.healthy) {
        not_ready = "store_unavailable";
        why = st.problem;
    } else if (st.queue_age_us > SLOW_US) {
        not_ready = "store_slow";
        why = "Writes have waited for seconds.";
    }
    struct jw w = jw_begin(&body);
    jw_obj(&w);
    jw_kstr(&w, "status", str_of(not_ready == NULL ? "ready" : "not ready"));
    if (not_ready != NULL) {
        jw_kstr(&w, "error", str_of(why));
        jw_kstr(&w, "code", str_of(not_ready));
    }
    jw_end_obj(&w);
    front_json(f, http_req_id(req), not_ready == NULL ? 200 : 503, &body);
    buf_done(&body);
}
