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

async function teams() {
  const { CardFactory, CloudAdapter, MessageFactory, TeamsActivityHandler, TeamsInfo, TurnContext } = need('botbuilder');
  const { AuthenticationConfiguration, BotFrameworkAuthenticationFactory, MsalServiceClientCredentialsFactory } = need('botframework-connector');
  const { ConfidentialClientApplication } = need('@azure/msal-node');
  const [appId, tenant, clientSecret, thumbprint, privateKey] = token.split(' ');
  const complain = (e) => say({ error: String((e && e.stack) || e) });
  process.on('unhandledRejection', complain);
  console.error = (...what) => say({ complaint: what.map(String).join(' ') });
  const ask = (method) => async (address, options) => {
    const answer = await fetch(address.replace('https://login.microsoftonline.com', url), { method, headers: options?.headers, body: options?.body });
    return { status: answer.status, headers: {}, body: await answer.json() };
  };
  const login = (more) => new ConfidentialClientApplication({
    auth: { clientId: appId, authority: `https://login.microsoftonline.com/${tenant}`, ...more },
    system: { networkClient: { sendGetRequestAsync: ask('GET'), sendPostRequestAsync: ask('POST') } },
  });
  if (thumbprint) {
    const certificate = { thumbprint, privateKey: Buffer.from(privateKey, 'base64').toString() };
    const got = await login({ clientCertificate: certificate }).acquireTokenByClientCredential({ scopes: ['https://api.botframework.com/.default'] });
    say({ certified: got.tokenType });
  }
  const auth = BotFrameworkAuthenticationFactory.create(
    '', true, `https://login.microsoftonline.com/${tenant}`, 'https://api.botframework.com', 'https://api.botframework.com',
    'https://api.botframework.com', `${url}/v1/.well-known/openidconfiguration`, `${url}/${tenant}/v2.0/.well-known/openid-configuration`,
    'urn:botframework:azure', new MsalServiceClientCredentialsFactory(appId, login({ clientSecret })), new AuthenticationConfiguration());
  const adapter = new CloudAdapter(auth);
  adapter.onTurnError = async (_, e) => complain(e);
  const card = (...actions) => CardFactory.adaptiveCard({
    type: 'AdaptiveCard', version: '1.4', body: [{ type: 'TextBlock', text: 'sure?', wrap: true }, ...actions],
  });
  const button = { type: 'Action.Execute', verb: 'v', title: 'Yes', data: { bellhop: { press: 'hp1:q:yes' } } };
  const stream = (type, text, info) => ({ type, text, channelData: info }); // botbuilder drops unknown members of entities
  class Bot extends TeamsActivityHandler {
    constructor() {
      super();
      this.onMessage(async (c, next) => {
        const text = TurnContext.removeRecipientMention(c.activity) ?? c.activity.text;
        say({ text: text.trim(), by: c.activity.from.name, kind: c.activity.conversation.conversationType, files: (c.activity.attachments ?? []).map((a) => a.contentType) });
        if (text.trim() !== 'everything') return next();
        const sent = await c.sendActivity('hi');
        await c.updateActivity({ ...MessageFactory.text('hi there'), id: sent.id });
        await c.sendActivity({ type: 'typing' });
        await c.sendActivity(MessageFactory.contentUrl(`data:image/png;base64,${PNG.toString('base64')}`, 'image/png', 'out.png'));
        const asked = await c.sendActivity({ attachments: [card({ type: 'ActionSet', actions: [button] })] });
        const started = await c.sendActivity(stream('typing', 'one', { streamType: 'streaming', streamSequence: 1 }));
        await c.sendActivity(stream('typing', 'one two', { streamId: started.id, streamType: 'streaming', streamSequence: 2 }));
        await c.sendActivity(stream('message', 'one two.', { streamId: started.id, streamType: 'final' }));
        const { members } = await TeamsInfo.getPagedMembers(c, 10);
        const reference = TurnContext.getConversationReference(c.activity);
        await adapter.continueConversationAsync(appId, reference, async (later) => { await later.sendActivity('proactive'); });
        const gone = await c.sendActivity('gone');
        await c.deleteActivity(gone.id);
        const picture = { name: 'r.pdf', contentType: 'application/vnd.microsoft.teams.card.file.consent',
          content: { description: 'a file', sizeInBytes: 3, acceptContext: { bellhop: 'x' }, declineContext: { bellhop: 'x' } } };
        const offered = await c.sendActivity({ attachments: [picture] });
        say({ did: sent.id, asked: asked.id, offered: offered.id, members: members.map((m) => m.name), streamed: started.id });
        return next();
      });
      this.onReactionsAdded(async (c, next) => { say({ reaction: c.activity.reactionsAdded[0].type, to: c.activity.replyToId }); return next(); });
      this.onInstallationUpdateAdd(async (c, next) => { say({ installed: c.activity.from.name }); return next(); });
      this.onMembersAdded(async (c, next) => { say({ added: c.activity.membersAdded[0].id }); return next(); });
      this.onTeamsMessageEditEvent(async (c, next) => { say({ edited: c.activity.text }); return next(); });
      this.onTeamsMessageSoftDeleteEvent(async (c, next) => { say({ deleted: c.activity.id }); return next(); });
    }
    async onAdaptiveCardInvoke(c, value) {
      say({ pressed: value.action.data.bellhop.press, under: c.activity.replyToId });
      return { statusCode: 200, type: 'application/vnd.microsoft.card.adaptive', value: card().content };
    }
    async handleTeamsFileConsentAccept(c, consent) {
      const sent = await fetch(consent.uploadInfo.uploadUrl, { method: 'PUT', body: PNG.subarray(0, 3), headers: { 'Content-Range': 'bytes 0-2/3' } });
      say({ uploaded: sent.status, file: consent.uploadInfo.name });
    }
  }
  const bot = new Bot();
  const server = require('node:http').createServer((req, res) => {
    let text = '';
    req.on('data', (piece) => { text += piece; });
    req.on('end', async () => {
      req.body = JSON.parse(text);
      res.status = (code) => { res.statusCode = code; };
      res.header = (name, value) => res.setHeader(name, value);
      res.send = (body) => res.write(typeof body === 'string' ? body : JSON.stringify(body));
      await adapter.process(req, res, (c) => bot.run(c)).catch(complain);
    });
  });
  server.listen(0, '127.0.0.1', () => say({ ready: server.address().port }));
}

async function line() {
  const { middleware, messagingApi } = need('@line/bot-sdk');
  const [channelAccessToken, channelSecret] = token.split(' ');
  const api = new messagingApi.MessagingApiClient({ channelAccessToken, baseURL: url });
  const files = new messagingApi.MessagingApiBlobClient({ channelAccessToken, baseURL: url });
  const verified = middleware({ channelSecret });
  const refusal = async (what) => what.then(() => null, (e) => ({ status: e.status, body: JSON.parse(e.body), accepted: e.headers.get('x-line-accepted-request-id') }));
  async function hear({ type, source, message, webhookEventId, deliveryContext }) {
    say({ type, text: message.text, by: source.userId, in: source.groupId, id: webhookEventId, again: deliveryContext.isRedelivery });
    if (message.type === 'image') {
      const bytes = [];
      for await (const chunk of await files.getMessageContent(message.id)) bytes.push(chunk);
      say({ bytes: Buffer.concat(bytes).toString('hex') });
    }
    if (message.text !== 'everything') return;
    const key = '123e4567-e89b-12d3-a456-426614174000', to = source.userId;
    const push = { to, messages: [{ type: 'text', text: 'hi' }] };
    const { sentMessages } = await api.pushMessage(push, key);
    const repeated = await refusal(api.pushMessage(push, key));
    await api.pushMessage({ to, messages: [{ type: 'image', originalContentUrl: 'https://a.example/1.png', previewImageUrl: 'https://a.example/1.png' }] }, key.replace('1', '2'));
    const empty = await refusal(api.pushMessage({ to, messages: [{ type: 'text', text: '' }] }, key.replace('1', '3')));
    const { userId, displayName } = await api.getBotInfo();
    say({ did: sentMessages[0].id, repeated, empty: empty.status, self: userId, name: displayName });
  }
  const server = require('node:http').createServer((req, res) => verified(req, res, async (wrong) => {
    if (wrong) say({ refused: wrong.name });
    try {
      for (const e of wrong ? [] : req.body.events) await hear(e);
    } catch (e) {
      say({ error: String((e && e.stack) || e) });
    }
    res.statusCode = wrong ? 401 : 200;
    res.end();
  }));
  server.listen(0, '127.0.0.1', () => say({ ready: server.address().port }));
}

({ grammy, discord, slack, whatsapp, teams, line })[kind]().catch((e) => say({ error: String(e) }));
