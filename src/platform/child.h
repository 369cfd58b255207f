/* child.h - a program that speaks JSON-RPC lines for a bot: run as a child process, or reached by
 * its socket.
 *
 *      DRAINING --lines of earlier programs taken--> WAITING --backoff--> UP
 *         ^------- it exited, hung up or was silent: down() -------------'
 *
 * The program is run by the server's helper process (net/spawner.h), because the confined server
 * must not exec.  With an address the program is a daemon of the operator's, and the connection
 * takes the place of the process.  In both cases everything that the program prints goes to a file
 * (net/spool.h) before bellhop reads it.  A notification leaves the file only once the adapter has
 * taken it; otherwise the next process hands it to the adapter again.  An answer that comes after
 * its call has ended, or while bellhop was not running, goes to late().
 *
 * Bounds: a line has max_line bytes, unread lines CHILD_MAX_UNREAD bytes in all, open calls
 * JSONRPC_MAX_CALLS, unread input SPAWN_UNREAD_BYTES.  A program that exceeds CHILD_MAX_UNREAD or
 * SPAWN_UNREAD_BYTES is restarted.  So is a program that does not answer the call `ping` within
 * CHILD_SILENT_MS.  Restarts back off from CHILD_FIRST_MS to CHILD_LAST_MS.  Of stderr
 * CHILD_LOG_LINES lines a minute are logged.
 *
 * signal/ uses it; docs/platforms/signal.md says what another bridge needs. */
#pragma once
#include "base/err.h"
#include "base/json.h"
#include "base/str.h"

struct child_peer;
struct child_call; /* a call under way: a cancel handle */
struct log;
struct loop;
struct spawner;

#define CHILD_PING_MS 15000   /* between two pings */
#define CHILD_SILENT_MS 25000 /* without an answer to one */
#define CHILD_FIRST_MS 500
#define CHILD_LAST_MS 60000
#define CHILD_WELL_MS 60000 /* after so long a program counts as healthy: the backoff starts anew */
#define CHILD_MAX_UNREAD ((uint64_t)256 << 20)
#define CHILD_LOG_LINES 20

struct child_answer { /* borrowed for the callback */
    /* BH_OK: the program answered, with a result or an error; BH_UNAVAILABLE: nothing was sent;
     * BH_UNKNOWN: it may have been carried out */
    enum bh_err err;
    bool ok;            /* a result */
    struct json value;  /* the result; of an error its `data` */
    int64_t code;       /* of an error */
    struct str message; /* of an error; of err a sentence for the log */
};
typedef void child_cb(void *ctx, const struct child_answer *a);

struct child_ops {
    void (*up)(void *ctx); /* started or connected; nothing was said yet */
    /* Ended; all calls have been answered.  @why is a sentence with what the program said last. */
    void (*down)(void *ctx, const char *why);
    /* A notification.  True: taken.  False: child_taken() follows once it is safe; until then the
     * next line waits, and after a crash this one comes again. */
    bool (*notified)(void *ctx, struct str method, struct json params);
    /* The program answered the call @id of child_call() after the call had ended.  NULL: ignored.
     */
    void (*late)(void *ctx, uint64_t id, const struct child_answer *a);
};

struct child_options {   /* borrowed while the child lives */
    char *const *argv;   /* the program; NULL: @address */
    const char *more;    /* one more argument; NULL: none */
    const char *address; /* unix:/path or host:port */
    const char *ping;    /* a method without parameters and effects; NULL: it is not asked */
    size_t max_line;
    struct loop *loop;
    struct spawner *spawner;
    const char *dir; /* of its lines; made if missing */
    const struct log *log;
};

/* NULL: unix:/path or host:port; else what is wrong with @address. */
const char *child_address_wrong(const char *address);

/* Callbacks begin with the next turn of the loop, never inside this call.  NULL: failed, and
 * @ret_why (256 bytes) says why. */
struct child_peer *child_open(const struct child_options *opt, const struct child_ops *ops,
                              void *ctx, char *ret_why);
void child_close(struct child_peer *c); /* ends the program; no callback after; NULL is fine */

bool child_is_up(const struct child_peer *c);
/* Calls a method; @params is a JSON object.  @id: a number of the caller's, at least CHILD_OWN_IDS,
 * that late() recognizes; 0: one is chosen.  @done runs once, later, unless the call is cancelled.
 * A method that was sent is carried out either way. */
struct child_call *child_call(struct child_peer *c, uint64_t id, const char *method,
                              struct str params, int64_t timeout_ms, child_cb *done,
                              void *ctx) BH_MUST_USE;
#define CHILD_OWN_IDS (UINT64_C(1) << 40)
void child_cancel(struct child_call **call); /* sets NULL; NULL inside is fine */
void child_taken(struct child_peer *c);      /* after notified() returned false */
/* Ends the program, which starts again; @why is logged. */
void child_restart(struct child_peer *c, const char *why);

struct child_stats {
    uint64_t starts, noise, lines;
    uint64_t unread; /* bytes of lines that are not taken */
};
void child_stats(const struct child_peer *c, struct child_stats *ret);
