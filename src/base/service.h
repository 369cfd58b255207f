/* service.h - a word to the service manager (systemd's protocol, by hand). */
#pragma once

/* "READY=1", "STATUS=asleep", ...  Nothing without NOTIFY_SOCKET; never waits. */
void service_tell(const char *what);
