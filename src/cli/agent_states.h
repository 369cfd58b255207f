/* agent_states.h - the agents of the server on this machine, and how each of them is. */
#pragma once
#include "cli/cli.h"

/* [{tenant, agent_id, substrate, target, state, waiting, parked, ..., status?, detail?}]: the last
 * two are what GET /v1/agents/ID/status says, asked one agent after the other; those who are not
 * asked within ten seconds have none.  As cli_call(). */
int agent_states(const struct cli_args *a, struct json_parser *parser, struct json *ret_doc);

/* What is wrong with one of them; absent: nothing that is known. */
struct str agent_problem(struct json agent);
