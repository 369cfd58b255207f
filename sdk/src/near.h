/* near.h - dialling a connector on this machine without libcurl.
 *
 * An agent that is started to answer one message starts in three milliseconds without libcurl and
 * in fifteen with it.  For http to a loopback address there is nothing libcurl would add: no name
 * to look up, no TLS, and no proxy unless the environment names one. */
#pragma once
#include "conn.h"

/* A socket that is connecting to @url; -1: libcurl's business (or it failed at once, and libcurl
 * will say why better than we could). */
int gwc_near_dial(const char *url);
enum gwc_io gwc_near_dial_step(int fd, char error[CURL_ERROR_SIZE]);
void gwc_near_dial_wait(int fd, int wake_fd, int timeout_ms);
enum gwc_io gwc_near_write(int fd, struct str bytes, size_t *ret_n);
enum gwc_io gwc_near_read(int fd, char *p, size_t n, size_t *ret_n);
