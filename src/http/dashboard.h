/* dashboard.h - the operator's page at /dashboard: sign-in, sessions, calls and live numbers.
 *
 *      GET  /dashboard                   the page; anybody may load it, it contains no data
 *      GET  /dashboard/assets/<version>/<name>  its scripts and styles (web/dashboard/)
 *      GET  /dashboard/api/session       who is signed in, and the token against forged requests
 *      POST /dashboard/api/signin        {"token"} or {"link"} -> a session, in a cookie
 *      POST /dashboard/api/signout       ends the session
 *      GET  /dashboard/api/events        server-sent events: the numbers of every second
 *      POST /dashboard/api/look          which instances the page shows: filter, order, window
 *      POST /dashboard/api/<operation>   any operation of http/op.h that the session may call
 *
 * The page does nothing that the command line cannot do: a call runs the same struct op.  A session
 * belongs to the operator or to one tenant, and may be read-only.  A tenant's session may call only
 * operations with op.tenant_view, and their argument `tenant` is the session's.
 *
 *      dashboard_session.c   one-time links, sessions, the limit of wrong tokens
 *      dashboard_live.c      the table of instances and the streams of open pages
 */
#pragma once
#include "base/str.h"
#include "http/front.h"

struct dashboard;
struct rand;

/* @f and @rand are borrowed and outlive the dashboard. */
struct dashboard *dashboard_new(struct front *f, struct rand *rand);
/* The cursor of a list names the last row that was looked at, which may be another tenant's: a
 * tenant's page gets it sealed.  False: @sealed is not one of this tenant's cursors. */
void dashboard_seal(const struct dashboard *d, struct str tenant, struct str cursor,
                    struct buf *out);
bool dashboard_open(const struct dashboard *d, struct str tenant, struct str sealed,
                    struct buf *out);
/* The tenant is erased: signs out its pages, and drops its links that were not used. */
void dashboard_forget(struct dashboard *d, struct str tenant);
void dashboard_end_streams(struct dashboard *d); /* pages reconnect; NULL is fine */
void dashboard_free(struct dashboard *d);        /* before the HTTP server; NULL is fine */
