/* ops_care.h - samples the flow of messages every ten seconds, for the last hour. */
#pragma once

struct flow;
struct front;

struct flow *flow_new(struct front *f); /* @f is borrowed, and has its relay */
void flow_free(struct flow *fl);        /* NULL is fine */
