/* guild.h - one guild that the tests of the Discord adapter share.
 *
 * Guild 77 "Hotel": #general 100 (topic), #staff 110 (only role 501), a forum 120; thread 200 under
 * 100, private thread 210 under 100, forum post 220 under 120.  The bot is user 9, its own role is
 * 500.  Ann is 42, the owner is 1. */
#pragma once
#define GUILD_77 \
    "{\"id\":\"77\",\"name\":\"Hotel\",\"owner_id\":\"1\",\"roles\":[" \
    "{\"id\":\"77\",\"permissions\":\"1024\"}," \
    "{\"id\":\"500\",\"permissions\":\"0\",\"tags\":{\"bot_id\":\"9\"}}," \
    "{\"id\":\"501\",\"permissions\":\"0\"},{\"id\":\"502\",\"permissions\":\"17179869184\"}]," \
    "\"channels\":[" \
    "{\"id\":\"100\",\"type\":0,\"name\":\"general\",\"topic\":\"all things\"," \
    "\"last_message_id\":\"1000\",\"permission_overwrites\":[]}," \
    "{\"id\":\"110\",\"type\":0,\"name\":\"staff\",\"topic\":null,\"permission_overwrites\":[" \
    "{\"id\":\"77\",\"type\":0,\"allow\":\"0\",\"deny\":\"1024\"}," \
    "{\"id\":\"501\",\"type\":0,\"allow\":\"1024\",\"deny\":\"0\"}]}," \
    "{\"id\":\"120\",\"type\":15,\"name\":\"questions\",\"topic\":\"ask here\"}]," \
    "\"threads\":[" \
    "{\"id\":\"200\",\"type\":11,\"name\":\"dinner\",\"parent_id\":\"100\"}," \
    "{\"id\":\"210\",\"type\":12,\"name\":\"secret\",\"parent_id\":\"100\"}," \
    "{\"id\":\"220\",\"type\":11,\"name\":\"how do I\",\"parent_id\":\"120\"}]," \
    "\"members\":[{\"user\":{\"id\":\"42\"},\"nick\":\"Ann of 77\",\"roles\":[]}]}"
