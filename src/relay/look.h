/* look.h - what is left of looking at mailboxes when the relay ends; the rest is in relay.h. */
#pragma once

struct relay;

void look_free_all(struct relay *r); /* the store holds none of the reads any more */
