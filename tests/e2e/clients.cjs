// clients.cjs KIND PACKAGES URL TOKEN: a bot written with a library that many use, against one of the simulators.
// It answers what it hears and prints, a JSON line each, what it understood.
const [kind, packages, url, token] = process.argv.slice(2);
const need = (name) => require(require.resolve(name, { paths: [packages] }));
const say = (what) => console.log(JSON.stringify(what));
const PNG = Buffer.from('89504e470d0a1a0a00000000', 'hex');

async function grammy() {
  const { Bot, InlineKeyboard, InputFile } = need('grammy');
  const bot = new Bot(token, { client: { apiRoot: url } });
  bot.on('message:photo', async (ctx) => {
    const file = await ctx.getFile();
    const bytes = Buffer.from(await (await fetch(`${url}/file/bot${token}/${file.file_path}`)).arrayBuffer());
    say({ photo: bytes.toString('hex'), caption: ctx.message.caption });
    const shown = await ctx.replyWithPhoto(new InputFile(PNG, 'out.png'), { caption: 'out' });
    await ctx.replyWithVoice(new InputFile(Buffer.from('OggS'), 'out.ogg'));
    await ctx.react('👍');
    say({ shown: shown.caption });
  });
  bot.on('message:text', async (ctx) => {
    const keyboard = new InlineKeyboard().text('Yes', 'hp1:q:yes').text('No', 'hp1:q:no');
    await ctx.reply('sure?', { reply_markup: keyboard, reply_parameters: { message_id: ctx.msgId } });
    say({ text: ctx.msg.text, from: ctx.from.first_name });
  });
  bot.on('callback_query:data', async (ctx) => {
    await ctx.answerCallbackQuery({ text: 'noted' });
    await ctx.editMessageReplyMarkup({ reply_markup: new InlineKeyboard().text('✔ Yes', 'hp1:q:yes') });
    say({ pressed: ctx.callbackQuery.data, under: ctx.callbackQuery.message.text });
  });
  bot.catch((e) => say({ error: String(e.error) }));
  await bot.api.setMyCommands([{ command: 'ask', description: 'Ask something' }]);
  await bot.start({ onStart: (me) => say({ ready: me.username }) });
}

async function discord() {
  const { ActionRowBuilder, AttachmentBuilder, ButtonBuilder, ButtonStyle, Client, GatewayIntentBits, Partials } =
    need('discord.js');
  const bits = GatewayIntentBits;
  const client = new Client({
    intents: [bits.Guilds, bits.GuildMessages, bits.DirectMessages, bits.MessageContent],
    partials: [Partials.Channel],
    rest: { api: url.replace('/v10', ''), version: '10' },
  });
  const button = (id, label) => new ButtonBuilder().setCustomId(`hp1:q:${id}`).setLabel(label).setStyle(ButtonStyle.Primary);
  const row = (...buttons) => new ActionRowBuilder().addComponents(...buttons);
  client.on('messageCreate', async (m) => {
    if (m.author.bot) {
      say({ own: m.content, buttons: m.components.flatMap((r) => r.components.map((b) => b.customId)) });
      return;
    }
    say({ text: m.content, from: m.member?.displayName, files: [...m.attachments.values()].map((a) => a.url) });
    const asked = await m.reply({ content: 'sure?', components: [row(button('yes', 'Yes'), button('no', 'No'))] });
    const after = await asked.edit({ components: [] });
    say({ left: after.components.length, text: after.content });
    const shown = await m.channel.send({ content: 'out', files: [new AttachmentBuilder(PNG, { name: 'out.png' })] });
    await m.react('👍');
    const thread = await m.startThread({ name: 'more' });
    await thread.setName('much more');
    say({ shown: shown.content, thread: thread.name });
  });
  client.on('interactionCreate', async (i) => {
    if (i.isButton()) await i.update({ components: [row(button('yes', 'Yes').setDisabled(true))] });
    say({ pressed: i.customId, by: i.user.username });
  });
  client.on('clientReady', async () => {
    await client.application.commands.create({ name: 'ask', description: 'Ask something' });
    say({ ready: client.user.username, guilds: client.guilds.cache.map((g) => g.name) });
  });
  client.on('error', (e) => say({ error: String(e), body: e.rawError, at: e.url }));
  process.on('unhandledRejection', (e) => say({ error: String(e), body: e.rawError }));
  await client.login(token);
}

// TOKEN is "xoxb-... xapp-... secret"; with an app-level token by socket, else by webhook.
async function slack() {
  const { App, LogLevel } = need('@slack/bolt');
  const [bot, appToken, signingSecret] = token.split(' ');
  const socketMode = appToken !== '-';
  const complain = (...what) => say({ error: what.map(String).join(' ') });
  const logger = { debug() {}, info() {}, warn: complain, error: complain, setLevel() {}, getLevel: () => LogLevel.INFO, setName() {} };
  const app = new App({ token: bot, ...(socketMode ? { appToken, socketMode } : { signingSecret }), logger,
    clientOptions: { slackApiUrl: `${url}/`, retryConfig: { retries: 0 } } });
  const buttons = [{ type: 'section', text: { type: 'plain_text', text: 'sure?' } },
    { type: 'actions', elements: [{ type: 'button', action_id: 'a', value: 'yes', text: { type: 'plain_text', text: 'Yes' } }] }];
  app.message(async ({ message, client }) => {
    const { channel, ts } = message;
    say({ text: message.text, by: message.user, files: (message.files ?? []).map((f) => f.id) });
    if (message.text !== 'everything') return;
    const who = (await client.users.info({ user: message.user })).user.name;
    const where = (await client.conversations.info({ channel })).channel;
    const asked = await client.chat.postMessage({ channel, thread_ts: ts, text: 'sure?', blocks: buttons,
      metadata: { event_type: 'x_y', event_payload: { key: 'k' } } });
    await client.chat.update({ channel, ts: asked.ts, text: 'sure', blocks: buttons });
    await client.reactions.add({ channel, timestamp: ts, name: 'eyes' });
    await client.reactions.remove({ channel, timestamp: ts, name: 'eyes' });
    await client.chat.postEphemeral({ channel, user: message.user, text: 'only you' });
    await client.assistant.threads.setStatus({ channel_id: channel, thread_ts: ts, status: 'is thinking' });
    const replies = await client.conversations.replies({ channel, ts, include_all_metadata: true });
    const history = await client.conversations.history({ channel, limit: 5 });
    await client.filesUploadV2({ channel_id: channel, thread_ts: ts, file: PNG, filename: 'out.png', initial_comment: 'see' });
    const stream = client.chatStream({ channel, thread_ts: ts, recipient_user_id: message.user, recipient_team_id: message.team, buffer_size: 1 });
    await stream.append({ markdown_text: '**one** ' });
    await stream.append({ markdown_text: 'two' });
    await stream.stop();
    const extra = await client.chat.postMessage({ channel: 'C0OTHER', text: 'gone' });
    await client.chat.delete({ channel: 'C0OTHER', ts: extra.ts });
    say({ did: who, where: where.name ?? where.user, key: replies.messages[1].metadata.event_payload.key, seen: history.messages.length });
  });
  app.action('a', async ({ ack, action, body }) => { await ack(); say({ pressed: action.value, under: body.message.text }); });
  app.command('/hermes', async ({ ack, command }) => { await ack('noted'); say({ command: command.command, words: command.text }); });
  app.error(async (e) => complain(e.stack));
  process.on('unhandledRejection', (e) => complain(e && e.stack));
  await app.start(0);
  say({ ready: (await app.client.auth.test()).user, port: socketMode ? 0 : app.receiver.server.address().port });
}

async function whatsapp() {
  const { pathToFileURL } = require('node:url');
  const load = (name) => import(pathToFileURL(`${packages}/node_modules/whatsapp-api-js/lib/${name}.js`));
  const { WhatsAppAPI } = await load('middleware/node-http');
  const m = await load('messages/index');
  const [access, appSecret, webhookVerifyToken] = token.split(' ');
  const complain = (e) => say({ error: String((e && e.stack) || e) });
  process.on('unhandledRejection', complain);
  const there = (address, options) => fetch(String(address).replace('https://graph.facebook.com', url), options);
  const api = new WhatsAppAPI({ token: access, appSecret, webhookVerifyToken, v: 'v25.0', ponyfill: { fetch: there } });
  const good = async (what) => {
    const answer = await what;
    if (answer.error) complain(JSON.stringify(answer));
    return answer;
  };
  api.on.message = async ({ phoneID, recipient, message, name, reply, received }) => {
    say({ type: message.type, text: message.text?.body, by: name, recipient });
    if (message.type === 'interactive') {
      const { button_reply: button, list_reply: row } = message.interactive;
      say({ [button ? 'pressed' : 'picked']: (button ?? row).id, under: message.context.id });
    }
    if (message.type === 'image') {
      const { url: at } = await good(api.retrieveMedia(message.image.id, phoneID));
      say({ bytes: Buffer.from(await (await api.fetchMedia(at)).arrayBuffer()).toString('hex') });
    }
    if (message.text?.body !== 'everything') return;
    await good(received('text'));
    const said = await good(reply(new m.Text('hi', false), true, 'a mark'));
    await good(api.sendMessage(phoneID, { bsuid: recipient.bsuid }, new m.Text('by id')));
    const yes = [new m.Button('yes', 'Yes'), new m.Button('no', 'No')];
    const asked = await good(reply(new m.Interactive(new m.ActionButtons(...yes), new m.Body('Sure?'))));
    const rows = new m.ListSection(undefined, new m.Row('a', 'A', 'the first'), new m.Row('b', 'B'));
    const listed = await good(reply(new m.Interactive(new m.ActionList('Choose', rows), new m.Body('Which?'))));
    await good(reply(new m.Reaction(message.id, '👍')));
    await good(reply(new m.Reaction(message.id)));
    const form = new FormData();
    form.set('file', new Blob([PNG], { type: 'image/png' }), 'out.png');
    const { id } = await good(api.uploadMedia(phoneID, form));
    await good(reply(new m.Image(id, true, 'see')));
    await good(reply(new m.Document(id, true, 'as a file', 'out.png')));
    await good(reply(new m.Template('new_answer', 'en_US', new m.BodyComponent(new m.BodyParameter('one')))));
    await good(api.deleteMedia(id, phoneID));
    const wrong = await reply(new m.Image('4711', true));
    say({ did: said.messages[0].id, asked: asked.messages[0].id, listed: listed.messages[0].id, refused: wrong.error.code });
  };
  api.on.status = ({ status, id, biz_opaque_callback_data: mark, error }) => say({ status, id, mark, code: error?.code });
  const server = require('node:http').createServer(async (req, res) => {
    try {
      if (req.method === 'GET') res.end(await api.handle_get(req));
      else res.writeHead(await api.handle_post(req)).end();
    } catch (e) {
      complain(e);
      res.writeHead(500).end();
    }
  });
  server.listen(0, '127.0.0.1', () => say({ ready: server.address().port }));
}

({ grammy, discord, slack, whatsapp })[kind]().catch((e) => say({ error: String(e) }));
