// A Skillscript runtime whose agents, skills and data are bellhop's. Registered by program: the runtime takes no
// classes of others from its connectors.json.
//
//     npm install skillscript-runtime ./adapters/skillscript
//     BELLHOP_URL=http://127.0.0.1:7077 BELLHOP_KEY=… node bootstrap.mjs SKILL     runs that skill once
//     BELLHOP_URL=http://127.0.0.1:7077 BELLHOP_KEY=… node bootstrap.mjs           runs the triggers of all of them
import { DataStoreMcpConnector, Registry, Scheduler, SkillStoreMcpConnector, wireDeclarativeTriggers } from "skillscript-runtime";
import { BellhopAgentConnector, BellhopDataStore, BellhopSkillStore } from "bellhop-skillscript";

const options = { url: process.env.BELLHOP_URL, key: process.env.BELLHOP_KEY };
const skills = new BellhopSkillStore(options);
const data = new BellhopDataStore(options);

const registry = new Registry();
registry.registerSkillStore("primary", skills);
registry.registerDataStore("primary", data);
await registry.registerAgentConnector("primary", new BellhopAgentConnector(options)); // throws when bellhop does not answer
for (const tool of ["skill_read", "skill_write"]) registry.registerMcpConnector(tool, new SkillStoreMcpConnector(skills));
for (const tool of ["data_read", "data_write"]) registry.registerMcpConnector(tool, new DataStoreMcpConnector(data));

const scheduler = new Scheduler({ registry, skillStore: skills });
const [name] = process.argv.slice(2);
if (name === undefined) {
  await wireDeclarativeTriggers({ scheduler, skillStore: skills });
  scheduler.start();
  console.log("running; stop with ^C");
} else {
  const now = Date.now();
  const result = await scheduler.dispatchSkill(name, undefined, { source: "cli", name, fired_at_ms: now, trigger_id: `cli-${now}` });
  for (const line of result?.emissions ?? []) console.log(line);
  for (const e of result?.errors ?? []) console.error(`${e.class}: ${e.message}`);
  if (result === null) console.error(`${name} was not run: it is not there, or not approved`);
  process.exitCode = result !== null && result.errors.length === 0 ? 0 : 1;
}
