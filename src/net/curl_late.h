/* curl_late.h - <curl/curl.h>, with the library loaded when it is first needed.  Private to
 * src/net/.
 *
 * libcurl pulls in some thirty libraries and four megabytes of memory, and takes most of the
 * start-up time; a server without outgoing calls needs none of it.  So every call goes through a
 * table.  curl_global_init() fills the table first, so call it before any other function, as
 * libcurl requires anyway.  The gateway client is compiled with this header in front (see the top
 * meson.build) and needs no change. */
#pragma once
#define CURL_DISABLE_TYPECHECK
#include <curl/curl.h>

#define CURL_LATE_EACH(X) \
    X(curl_easy_cleanup) \
    X(curl_easy_getinfo) \
    X(curl_easy_init) \
    X(curl_easy_pause) \
    X(curl_easy_perform) \
    X(curl_easy_recv) \
    X(curl_easy_reset) \
    X(curl_easy_send) \
    X(curl_easy_setopt) \
    X(curl_easy_strerror) \
    X(curl_global_cleanup) \
    X(curl_global_init) \
    X(curl_multi_add_handle) \
    X(curl_multi_assign) \
    X(curl_multi_cleanup) \
    X(curl_multi_info_read) \
    X(curl_multi_init) \
    X(curl_multi_perform) \
    X(curl_multi_poll) \
    X(curl_multi_remove_handle) \
    X(curl_multi_setopt) \
    X(curl_multi_socket_action) \
    X(curl_slist_append) \
    X(curl_slist_free_all)

/* curl.h wraps the variadic functions in its own macros. */
#undef curl_easy_getinfo
#undef curl_easy_setopt
#undef curl_multi_setopt

struct curl_late {
#define CURL_LATE_MEMBER(name) __typeof__(&name) name##_f;
    CURL_LATE_EACH(CURL_LATE_MEMBER)
#undef CURL_LATE_MEMBER
};
extern struct curl_late curl_late;

#define curl_easy_cleanup curl_late.curl_easy_cleanup_f
#define curl_easy_getinfo curl_late.curl_easy_getinfo_f
#define curl_easy_init curl_late.curl_easy_init_f
#define curl_easy_pause curl_late.curl_easy_pause_f
#define curl_easy_perform curl_late.curl_easy_perform_f
#define curl_easy_recv curl_late.curl_easy_recv_f
#define curl_easy_reset curl_late.curl_easy_reset_f
#define curl_easy_send curl_late.curl_easy_send_f
#define curl_easy_setopt curl_late.curl_easy_setopt_f
#define curl_easy_strerror curl_late.curl_easy_strerror_f
#define curl_global_cleanup curl_late.curl_global_cleanup_f
#define curl_global_init curl_late.curl_global_init_f
#define curl_multi_add_handle curl_late.curl_multi_add_handle_f
#define curl_multi_assign curl_late.curl_multi_assign_f
#define curl_multi_cleanup curl_late.curl_multi_cleanup_f
#define curl_multi_info_read curl_late.curl_multi_info_read_f
#define curl_multi_init curl_late.curl_multi_init_f
#define curl_multi_perform curl_late.curl_multi_perform_f
#define curl_multi_poll curl_late.curl_multi_poll_f
#define curl_multi_remove_handle curl_late.curl_multi_remove_handle_f
#define curl_multi_setopt curl_late.curl_multi_setopt_f
#define curl_multi_socket_action curl_late.curl_multi_socket_action_f
#define curl_slist_append curl_late.curl_slist_append_f
#define curl_slist_free_all curl_late.curl_slist_free_all_f
