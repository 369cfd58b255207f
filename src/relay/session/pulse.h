/* pulse.h - is the other side alive: pings and pongs, and acks that do not come.
 *
 * A socket that answers no ping for pong_patience_ms, or acks nothing for ack_patience_ms, is away:
 * the pump stops and the instance is poked, but nothing that was sent on it is sent on it again.
 * After three times that silence it is closed.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "base/clock.h"

struct session;

timer_cb pulse_tick;                 /* of session->tick */
void session_arm(struct session *s); /* its next deadline may have come nearer */
void session_ping(struct session *s);
void session_alive(struct session *s, bool acked); /* a pong, or an ack */
