/* retry.h - what the store refused is tried again after a while. */
#pragma once

#define RETRY_MS 1000

struct instance;
struct relay;
struct retry;

struct retry *retry_new(struct relay *r);
void retry_free(struct retry *t); /* NULL is fine */

void retry_want(struct instance *i);   /* something of @i failed for want of the store */
void retry_want_acks(struct relay *r); /* a batch of acks did: acks.h */
void retry_now(struct relay *r);       /* the last chance before the end */
