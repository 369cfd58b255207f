/* stage.h - events that wait for their files, or their context, before they enter a mailbox.
 *
 * A file that only bellhop can fetch (with the bot's credential) is fetched when its message comes.
 * The message is on disk first, and then its platform is told that it was received; it enters the
 * mailbox when its files are here, or media.wait is over, and then says what is missing.  Only its
 * own chat waits behind it.  What was said before a message, where its platform has to be asked, is
 * waited for in the same way.
 *
 * A file whose address anybody can read, but not for long (Discord's hold for a day), is fetched
 * when somebody who gets the message is not here now: a sleeper of days still gets its files.  Else
 * its address is passed on as it is, and so it is when it cannot be fetched.
 *
 *      stage_take() --record on disk--> done(BH_OK) --> files --all here, or late--> relay_accept()
 *                                                                  '--on disk there--> record goes
 *
 * Namespace "staged", key platform US bot US number, value event_save()'s.  What is found there at
 * a start is fetched and delivered; where it had entered already, the mailbox knows its event id.
 */
#pragma once
#include "platform/platform.h"

struct media;
struct stages;

struct stage_hooks { /* what the host does for it */
    /* Into the mailboxes: core/accept.h. */
    struct accept_id (*enter)(void *ctx, const struct event *ev, accepted_cb *done, void *done_ctx);
    void (*enter_cancel)(void *ctx, struct accept_id id);
    /* The first tenant that would get it; absent: nobody would. */
    struct str (*tenant)(void *ctx, const struct event *ev, struct buf *ret);
    /* Is anybody who would get it not here now? */
    bool (*sleeps)(void *ctx, const struct event *ev);
    bool (*wants_context)(void *ctx, const struct event *ev); /* somebody who would get it does */
    struct platform *(*platform)(void *ctx, struct str platform, struct str bot);
};

/* Blocks: reads what an earlier process left.  All borrowed. */
enum bh_err stages_open(const struct host_env *env, struct media *media,
                        const struct stage_hooks *hooks, void *ctx, struct stages **ret_s,
                        char *ret_why) BH_MUST_USE;
void stages_close(struct stages *s); /* what waits stays on disk; NULL is fine */

/* Must this event be staged: it has a file to be fetched, something of its chat waits, or it shall
 * have its context? */
bool stage_wants(struct stages *s, const struct event *ev);
struct accept_id stage_take(struct stages *s, const struct event *ev, accepted_cb *done, void *ctx);
bool stage_owns(struct accept_id id); /* else it is the relay's */
void stage_cancel(struct stages *s, struct accept_id id);

/* The platform opened: what waited for it goes on.  It closes: what it was asked for is void. */
void stage_opened(struct stages *s, struct platform *p);
void stage_closed(struct stages *s, struct platform *p);

/* The platform's answers; see platform.h. */
void stage_media_at(struct stages *s, struct media_ask ask, const struct media_at *at);
void stage_media_gone(struct stages *s, struct media_ask ask, const char *why);
void stage_context(struct stages *s, struct context_ask ask, const struct event_said *said,
                   size_t n, bool failed);

size_t stages_waiting(const struct stages *s);
